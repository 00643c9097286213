;; world: validator
;; Has a memory that threads share.
(memory (export "memory") 1)
(memory $shared 1 1 shared)
