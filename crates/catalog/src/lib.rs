//! What clouds sell: instance types with their prices, and the offerings (type x zone x kind of capacity) made of them.
//!
//! ```
//! use forebay_catalog::{Catalogue, offering};
//! use forebay_kernel::catalog::CapacityType;
//!
//! let catalogue = Catalogue::builtin();
//! let row = catalogue.rows.iter().find(|row| row.instance_type == "g5.xlarge").expect("it is built in");
//! let spot = offering(row, "sim-1a", CapacityType::Spot, 1000);
//! assert_eq!((spot.gpus, spot.max_price), (1, spot.on_demand));
//! assert!(spot.price < spot.on_demand);
//! ```
//!
//! Never: knows stock, or a price of the day. The list price and the mean spot price are here; the market moves them.

pub mod input;
mod offerings;
mod prices;

pub use offerings::{Catalogue, matches_glob, offering};
pub use prices::{BUILTIN_CSV, PriceRow, builtin, parse, read};
