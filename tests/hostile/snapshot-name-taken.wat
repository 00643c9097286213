;; world: validator
;; Has exports of its own where the instrumentation wants to put its.
(global (export "__wizer_global_0") (mut i32) (i32.const 0))
(func (export "wizer-initialize"))
(func (export "wizer.initialize"))
(func (export "__wizer_memory_0"))
