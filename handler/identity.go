package handler

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/durablefunctions-go/durablefunctions/durable"
)

// tokenMargin is the time before its expiry when a token is renewed. A token must not expire while a
// request is in flight.
const tokenMargin = 5 * time.Minute

// maxTokens limits the number of cached tokens. An app typically needs only a few.
const maxTokens = 1000

// identityTokens provides cached tokens of the app's Azure identity for durable.CallHTTP. The .NET
// extension requests a new token for each call (ManagedIdentityTokenSource.cs, GetTokenAsync).
type identityTokens struct {
	newCredential func(durable.ManagedIdentity) (azcore.TokenCredential, error)
	now           func() time.Time
	log           *slog.Logger

	mu          sync.Mutex                                         // guards the fields below
	credentials map[durable.ManagedIdentity]azcore.TokenCredential // keys without Resource
	tokens      map[durable.ManagedIdentity]*identityToken
}

var _ durable.TokenProvider = (*identityTokens)(nil)

// An identityToken is a cached token. A caller must hold turn to read or change current, so that only
// one caller requests a token while the others wait.
type identityToken struct {
	turn    chan struct{}
	current azcore.AccessToken
}

// withIdentity returns cfg with a provider of identity tokens, unless cfg has one.
func withIdentity(cfg durable.Config, log *slog.Logger) durable.Config {
	if cfg.HTTP.Tokens == nil {
		cfg.HTTP.Tokens = newIdentityTokens(log)
	}
	return cfg
}

func newIdentityTokens(log *slog.Logger) *identityTokens {
	return &identityTokens{
		newCredential: defaultCredential,
		now:           time.Now,
		log:           log,
		credentials:   make(map[durable.ManagedIdentity]azcore.TokenCredential),
		tokens:        make(map[durable.ManagedIdentity]*identityToken),
	}
}

// defaultCredential returns the default credential chain of the Azure libraries: environment variables,
// workload identity, managed identity and, on a developer's machine, the command-line tools.
func defaultCredential(m durable.ManagedIdentity) (azcore.TokenCredential, error) {
	options := azidentity.DefaultAzureCredentialOptions{TenantID: m.TenantID}
	if m.AuthorityHost != "" {
		options.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: m.AuthorityHost}
	}
	return azidentity.NewDefaultAzureCredential(&options)
}

// Token returns a token for m, cached or new. If the request for a new token fails, it returns the
// cached one as long as it has not expired.
func (p *identityTokens) Token(ctx context.Context, m durable.ManagedIdentity) (string, error) {
	credential, kept, err := p.find(m)
	if err != nil {
		return "", err
	}
	select {
	case kept.turn <- struct{}{}:
		defer func() { <-kept.turn }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	now := p.now()
	if fresh(kept.current, now) {
		return kept.current.Token, nil
	}
	p.log.Debug("requesting a token of the app's identity", "event", "RetrievingToken", "resource", m.Resource)
	token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{m.Resource}, TenantID: m.TenantID})
	switch {
	case err == nil:
		kept.current = token
		return token.Token, nil
	case kept.current.ExpiresOn.After(now):
		p.log.Warn("cannot renew the token of the app's identity; the current one is still valid", "event", "TokenRenewalFailed", "resource", m.Resource,
			"until", kept.current.ExpiresOn.UTC(), "error", err)
		return kept.current.Token, nil
	case ctx.Err() != nil:
		return "", err // the caller has canceled the request
	default:
		p.log.Error("cannot get a token of the app's identity", "event", "TokenRetrievalFailed", "resource", m.Resource, "error", err)
		return "", err
	}
}

// fresh reports whether t can be used without renewal.
func fresh(t azcore.AccessToken, now time.Time) bool {
	return t.Token != "" && now.Before(t.ExpiresOn.Add(-tokenMargin)) && (t.RefreshOn.IsZero() || now.Before(t.RefreshOn))
}

// find returns the credential and the cached token for m. It creates both on first use.
func (p *identityTokens) find(m durable.ManagedIdentity) (azcore.TokenCredential, *identityToken, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whose := durable.ManagedIdentity{AuthorityHost: m.AuthorityHost, TenantID: m.TenantID}
	credential := p.credentials[whose]
	if credential == nil {
		var err error
		if credential, err = p.newCredential(whose); err != nil {
			return nil, nil, fmt.Errorf("find the app's identity: %w", err)
		}
		if len(p.credentials) >= maxTokens {
			clear(p.credentials)
		}
		p.credentials[whose] = credential
	}
	kept := p.tokens[m]
	if kept == nil {
		if len(p.tokens) >= maxTokens {
			clear(p.tokens)
		}
		kept = &identityToken{turn: make(chan struct{}, 1)}
		p.tokens[m] = kept
	}
	return credential, kept, nil
}
