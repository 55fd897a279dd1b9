//! penstock._core
