mod matching;
mod mutation;
mod schema;
