;; world: mutator
;; Returns another whole object.
(data (i32.const 1024) "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"target\"}}")
;; object (3): that text.
(data (i32.const 4096) "\03\00\00\00" "\00\04\00\00" "\43\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 4096))
