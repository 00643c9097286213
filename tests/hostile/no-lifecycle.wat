;; world: no-lifecycle
;; Validates, but can be neither described nor configured.
