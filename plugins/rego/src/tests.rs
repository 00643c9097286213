mod policy;
mod sprintf;
mod suites;
mod syntax;
