//! Scenario and property tests of the engine.
