package durable

import (
	"context"
	"strings"
)

// A ManagedIdentity says for which resource an [HTTPRequest] needs a token of
// the identity that the app has. The token is got in the activity that sends the
// request, so that it stands in no history.
type ManagedIdentity struct {
	// Resource is what the token is for, such as
	// https://management.azure.com, with or without /.default.
	Resource string

	// AuthorityHost is where the token is got, of another cloud than Azure's
	// public one. Empty means that one's.
	AuthorityHost string

	// TenantID is the tenant of the identity. Empty means its own.
	TenantID string
}

// A TokenProvider gets tokens for the requests of [CallHTTP]. Its method is
// called at the same time by several activities; it should keep tokens while
// they are good. The handler has one for Azure.
type TokenProvider interface {
	// Token returns an access token for m's resource, a scope that ends in
	// /.default.
	Token(ctx context.Context, m ManagedIdentity) (string, error)
}

// scope returns the resource as a scope. .NET does so for two resources that it
// knows (ManagedIdentityTokenSource.cs, ManagedIdentityTokenSource), and takes
// others as they are; but an identity has no other scopes.
func (m ManagedIdentity) scope() string {
	const suffix = "/.default"
	if strings.HasSuffix(m.Resource, suffix) {
		return m.Resource
	}
	return strings.TrimSuffix(m.Resource, "/") + suffix
}
