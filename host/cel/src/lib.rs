//! CEL as Kubernetes has it, and Kubernetes' admission policies on top of it.
//!
//! The crate `cel` parses an expression. This crate checks it, compiles it to a tree, and evaluates the tree. It
//! has Kubernetes' libraries, typed construction (`Object{…}`, `JSONPatch{…}`), lazy variables, the cost limits of
//! kube-apiserver, and the error texts of cel-go. The policy's expressions are analysed for the places of a review that
//! they read. A review reads these together, and no others.
//!
//! The crate is pure: it has no input and output, and it builds for `wasm32-unknown-unknown`.
//!
//! ```
//! use tollgate_cel::{Environment, Scope, Tree, Value};
//!
//! let environment = Environment::new();
//! let program = environment.compile("object.spec.replicas <= 5").unwrap();
//! let review = Tree::new().object(&serde_json::json!({"spec": {"replicas": 3}}));
//! let (result, _) = Scope::new(&review, Value::Null, &[]).evaluate(&program);
//! assert_eq!(result, Ok(Value::Bool(true)));
//! ```

pub mod apply;
mod compile;
mod documents;
mod error;
mod eval;
mod functions;
pub mod json;
mod meter;
mod node;
mod ops;
pub mod patch;
mod plan;
pub mod policy;
pub mod signatures;
mod tree;
mod types;
mod value;

pub use compile::{Environment, Program};
pub use error::{CompileError, EvalError};
pub use eval::{Found, Scope, Source, Variable};
pub use functions::authz::{Account, Authz, Decision, On, Question, Resource};
pub use functions::format::NamedFormat;
pub use functions::net::Cidr;
pub use functions::quantity::Quantity;
pub use functions::semver::Version;
pub use functions::url::Url;
pub use meter::{CONDITIONS_LIMIT, EXPRESSION_LIMIT, POLICY_LIMIT};
pub use node::Document;
pub use tollgate_shape::Look;
pub use tree::Tree;
pub use types::{Field, Record, Type};
pub use value::{Key, Map, Struct, Value};

#[cfg(test)]
mod tests;
