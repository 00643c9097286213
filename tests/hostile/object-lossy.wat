;; world: mutator
;; Returns the whole object without the fields that it does not know: all of the spec.
(data (i32.const 1024) "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"target\",\"namespace\":\"default\",\"uid\":\"9a3b4c5d-0000-4000-8000-0123456789ab\",\"creationTimestamp\":\"2024-05-01T10:00:00Z\",\"labels\":{\"app\":\"target\"}},\"status\":{}}")
;; object (3): that text.
(data (i32.const 4096) "\03\00\00\00" "\00\04\00\00" "\d1\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 4096))
