//! Objects of a cluster that plugins may see: projected, indexed, and held in little memory.
//!
//! A [`Lookup`] of the configuration grants some objects of one resource, and some of their fields. A [`Table`] holds
//! them. A [`Writer`] follows the cluster, and any number of plugins read at the same time. A [`Projection`] reduces an
//! object while its JSON is read, so that an object is never held whole.
//!
//! No read searches through all objects: a read is a look into an ordered map, and a page has bounds.

mod content;
mod files;
mod granted;
mod intern;
mod page;
mod projection;
mod source;
mod table;

pub use files::FileTables;
pub use granted::Granted;
pub use page::{Entry, Failure, MOST_PAGE_BYTES, MOST_PAGE_OBJECTS, Page};
pub use projection::{DecodeError, Projected, Projection, ProjectionSeed};
pub use source::{NoTables, Tables};
pub use table::{LONGEST_CUT, Size, State, Synchronisation, Table, Writer};
pub use tollgate_config::lookup::{Lookup, Lookups};
