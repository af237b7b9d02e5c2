package durable

import (
	"context"
	"strings"
)

// ManagedIdentity selects the resource for which an [HTTPRequest] needs a token of the
// app's identity. The activity that sends the request acquires the token, so the token
// is not stored in the history.
type ManagedIdentity struct {
	// Resource is the resource that the token is for, such as
	// https://management.azure.com, with or without /.default.
	Resource string

	// AuthorityHost is the authority that issues the token. Empty means the authority of
	// Azure's public cloud.
	AuthorityHost string

	// TenantID is the tenant of the identity. Empty means the default tenant.
	TenantID string
}

// TokenProvider acquires tokens for the requests of [CallHTTP]. It must be safe for
// concurrent use and should cache tokens while they are valid. The handler has an
// implementation for Azure.
type TokenProvider interface {
	// Token returns an access token for m.Resource, which is a scope that ends in
	// /.default.
	Token(ctx context.Context, m ManagedIdentity) (string, error)
}

// scope returns the resource as a scope. .NET does this only for two resources that it
// knows (ManagedIdentityTokenSource.cs, ManagedIdentityTokenSource). Here it is done
// for all, because a managed identity has no other scopes.
func (m ManagedIdentity) scope() string {
	const suffix = "/.default"
	if strings.HasSuffix(m.Resource, suffix) {
		return m.Resource
	}
	return strings.TrimSuffix(m.Resource, "/") + suffix
}
