//! CRC-32C, and the mask that TFRecord stores it under.

/// CRC-32C (Castagnoli) of `data`, by the hardware where it has an instruction for it.
pub fn crc32c(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

/// Goes on from the CRC-32C `crc` of what came before.
pub fn append(crc: u32, data: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, data)
}

/// The CRC of two pieces from the CRC of each and the length of the second.
pub fn combine(first: u32, second: u32, second_length: usize) -> u32 {
    ::crc32c::crc32c_combine(first, second, second_length)
}

/// The masked form that TFRecord stores: rotated, plus a constant.
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C of `data`, masked.
pub fn masked(data: &[u8]) -> u32 {
    mask(crc32c(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the definition has it.
    fn naive(data: &[u8]) -> u32 {
        let mut crc = !0u32;
        for &byte in data {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            }
        }
        !crc
    }

    #[test]
    fn check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn agrees_with_the_definition_at_every_length() {
        let data: Vec<u8> = (0..4200u32).map(|i| (i * 31 % 251) as u8).collect();
        for length in (0..300).chain([1023, 1024, 1025, 4096, 4200]) {
            assert_eq!(crc32c(&data[..length]), naive(&data[..length]), "length {length}");
            let (head, tail) = data[..length].split_at(length / 3);
            assert_eq!(append(crc32c(head), tail), naive(&data[..length]));
            assert_eq!(combine(crc32c(head), crc32c(tail), tail.len()), naive(&data[..length]));
        }
    }

    #[test]
    fn masks_as_the_known_frame_has_it() {
        assert_eq!(masked(b"hello"), 0x191c_1fbb);
        assert_eq!(masked(&5u64.to_le_bytes()), 0x3e04_b2ea);
    }
}
