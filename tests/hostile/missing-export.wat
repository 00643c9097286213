;; world: validator
;; Promises the world `validator` and lacks the function "tollgate:admission/validating@0.1.0#validate".
