;; world: validator
;; Wants more memory than 32 bits can address.
(memory (export "memory") 1)
(memory $large i64 1)
