//! To be written.

pub mod launch;
