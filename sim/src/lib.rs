//! The engine under a virtual clock.
