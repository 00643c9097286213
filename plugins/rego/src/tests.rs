mod matching;
mod policy;
mod schema;
mod sprintf;
mod suites;
mod syntax;
