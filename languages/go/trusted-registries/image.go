package main

import "strings"

// image is a reference, split like in container runtimes, with Docker's abbreviations resolved.
type image struct {
	// name includes the registry and excludes the tag.
	name string
	tag  string
	// pinned tells whether there is a tag or a digest.
	pinned bool
}

func parse(reference string) image {
	name, _, hasDigest := strings.Cut(reference, "@")
	tag := ""
	// A colon before the last slash belongs to a port.
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag = name[:colon], name[colon+1:]
	}
	host, path, found := strings.Cut(name, "/")
	if !found || !looksLikeHost(host) && strings.ToLower(host) == host {
		host, path = "docker.io", name
	}
	host = strings.ToLower(host)
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	return image{name: host + "/" + path, tag: tag, pinned: hasDigest || tag != ""}
}

// isWithin compares components: registry.example.com is not a prefix of
// registry.example.com.evil.io.
func (image image) isWithin(prefix string) bool {
	return image.name == prefix || strings.HasPrefix(image.name, prefix+"/")
}

func looksLikeHost(component string) bool {
	return component == "localhost" || strings.ContainsAny(component, ".:")
}
