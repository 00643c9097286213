;; component
;; Was built for a contract that this host does not serve.
(component
    (instance $empty)
    (export "tollgate:admission/lifecycle@0.9.0" (instance $empty)))
