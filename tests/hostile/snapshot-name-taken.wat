;; world: validator
;; Has exports with the names that the instrumentation uses.
(global (export "__wizer_global_0") (mut i32) (i32.const 0))
(func (export "wizer-initialize"))
(func (export "wizer.initialize"))
(func (export "__wizer_memory_0"))
