mod library;
mod negation;
mod numbers;
mod oracle;
mod policy;
mod sprintf;
mod suites;
mod syntax;
