;; world: validator
;; Has a memory with 64-bit addresses.
(memory (export "memory") 1)
(memory $large i64 1)
