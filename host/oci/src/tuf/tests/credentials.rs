//! Credentials of the host of a TUF repository, which must not go over the network in clear.

use tollgate_config::RegistryHost;

use super::*;

/// A client that knows a password for the server.
fn client(repository: &Repository, server: &Server, plain_http: Option<bool>) -> Client {
    let client = Client::of(repository, server);
    let host = client.tuf.host().to_owned();
    let file = client.folder.path().join("docker.json");
    // `user:secret`
    let known = format!(r#"{{"auths": {{"{host}": {{"auth": "dXNlcjpzZWNyZXQ="}}}}}}"#);
    std::fs::write(&file, known).unwrap();
    let host = plain_http.map(|plain_http| RegistryHost {
        host,
        ca: None,
        plain_http,
    });
    let config = Registries {
        credentials: Some(file),
        hosts: host.into_iter().collect(),
        ..Registries::default()
    };
    Client {
        roots: TrustedRoots::new(config),
        ..client
    }
}

#[test]
fn credentials_do_not_go_to_a_repository_without_tls() {
    let repository = Repository::new(&trusted_root());
    let server = Server::start(&repository.published);
    for plain_http in [None, Some(false)] {
        server.set(Answers::Private(repository.published.clone()));
        let client = client(&repository, &server, plain_http);
        client.fails(&[
            "401",
            "without TLS only to a host with registries.hosts[].plainHTTP",
        ]);
        assert!(server.credentials.lock().unwrap().is_empty());
        // It asks without them, too.
        server.publish(&repository.published);
        assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    }
}

#[test]
fn credentials_go_to_a_host_that_may_be_used_without_tls() {
    let repository = Repository::new(&trusted_root());
    let server = Server::start(&repository.published);
    server.set(Answers::Private(repository.published.clone()));
    let client = client(&repository, &server, Some(true));
    assert_eq!(client.refresh().refreshed, Refreshed::Changed);
    let sent = server.credentials.lock().unwrap().clone();
    assert!(
        sent.iter().all(|login| login == "Basic dXNlcjpzZWNyZXQ="),
        "{sent:?}"
    );
    assert!(!sent.is_empty());
}
