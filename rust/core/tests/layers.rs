//! Modules depend on lower layers only: the order that `ls` and the docs of the crate describe is the order of the code.

use std::path::{Path, PathBuf};

/// The modules of the crate, lowest first. A module uses itself and those before it.
const LAYERS: [&str; 13] = [
    "error",
    "limits",
    "interrupt",
    "crc32c",
    "random",
    "ordered_queue",
    "io",
    "codec",
    "format",
    "example",
    "image",
    "csv",
    "order",
];

/// The feed is above all of them.
const TOP: &str = "feed";

/// Modules of `format` that no other one of these uses: the formats, and the one that knows all three.
const FORMATS: [&str; 4] = ["array_record", "tar", "tfrecord", "shard"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.ends_with("tests.rs") => {}
            false => found.push(path),
        }
    }
}

/// The code of a file without its comments and tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The names that follow `prefix`.
fn names<'c>(code: &'c str, prefix: &str) -> Vec<&'c str> {
    let name = |rest: &'c str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    code.split(prefix).skip(1).map(name).collect()
}

/// The path of a module within the crate: `format/tar/scan.rs` is in `format`, then in `tar`.
fn parts(root: &Path, path: &Path) -> Vec<String> {
    let inner = path.strip_prefix(root).unwrap().with_extension("");
    inner.iter().map(|part| part.to_string_lossy().into_owned()).collect()
}

#[test]
fn modules_use_lower_layers_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    assert!(found.len() > 50);
    let layer = |name: &str| LAYERS.iter().chain([&TOP]).position(|&layer| layer == name);
    for path in &found {
        let parts = parts(&root, path);
        if parts == ["lib"] {
            continue;
        }
        let own = layer(&parts[0]).unwrap_or_else(|| panic!("{}: expected a module of LAYERS", path.display()));
        for used in names(&code(path), "crate::") {
            assert!(layer(used).is_some_and(|used| used <= own), "{} uses {used}, a higher layer", path.display());
        }
    }
}

#[test]
fn formats_do_not_know_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root.join("format"), &mut found);
    for path in &found {
        let parts = parts(&root, path);
        if parts[1] == "shard" {
            continue;
        }
        for used in names(&code(path), "crate::format::") {
            let is_foreign = FORMATS.contains(&used) && used != parts[1];
            assert!(!is_foreign, "{} uses {used}", path.display());
        }
    }
}
