;; world: validator
;; Has 64 MB of memory before its first instruction.
(memory (export "memory") 1000)
