//! scratch
#[test]
fn write() {
    for (l, n) in [(100, 100), (300, 300), (1000, 300), (300, 1000), (1000, 1000), (3000,1000)] {
        std::fs::write(format!("/tmp/h6/slow-{l}-{n}.wasm"), tollgate_tests::hostile::slow_to_compile(l, n)).unwrap();
    }
    for (name, bytes) in tollgate_tests::hostile::all() {
        std::fs::write(format!("/tmp/h6/{name}.wasm"), bytes).unwrap();
    }
    for pages in [600, 1000, 16384, 65535, 65536] {
        std::fs::write(format!("/tmp/h6/mem-{pages}.wasm"), tollgate_tests::wat::plugin("validator", &format!("(memory (export \"memory\") {pages})"))).unwrap();
    }
}
