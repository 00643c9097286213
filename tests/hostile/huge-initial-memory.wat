;; world: validator
;; Has 4 GiB of memory before its first instruction.
(memory (export "memory") 65536)
