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

// tokenMargin is how long before its expiry a token is renewed, so that it does not expire
// on its way.
const tokenMargin = 5 * time.Minute

// maxTokens bounds the cached tokens. An app needs a few.
const maxTokens = 1000

// identityTokens caches tokens of the app's identity in Azure for durable.CallHTTP. The
// extension requests one for every call (ManagedIdentityTokenSource.cs, GetTokenAsync).
type identityTokens struct {
	newCredential func(durable.ManagedIdentity) (azcore.TokenCredential, error)
	now           func() time.Time
	log           *slog.Logger

	mu          sync.Mutex                                         // protects the following
	credentials map[durable.ManagedIdentity]azcore.TokenCredential // of no resource
	tokens      map[durable.ManagedIdentity]*identityToken
}

var _ durable.TokenProvider = (*identityTokens)(nil)

// An identityToken is a cached token. The holder of turn may read and change it, so that
// one call requests it and the others wait.
type identityToken struct {
	turn    chan struct{}
	current azcore.AccessToken
}

// withIdentity returns cfg with tokens of the app's identity, unless it has a provider.
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

// defaultCredential returns the chain of credentials that Azure's libraries
// share: the environment, a workload's or a managed identity, and on a
// developer's machine that of the command line tools.
func defaultCredential(m durable.ManagedIdentity) (azcore.TokenCredential, error) {
	options := azidentity.DefaultAzureCredentialOptions{TenantID: m.TenantID}
	if m.AuthorityHost != "" {
		options.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: m.AuthorityHost}
	}
	return azidentity.NewDefaultAzureCredential(&options)
}

// Token returns a token that is valid for some minutes or, if none can be requested, a
// cached one that has not expired.
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
		return "", err // the caller has given up
	default:
		p.log.Error("cannot get a token of the app's identity", "event", "TokenRetrievalFailed", "resource", m.Resource, "error", err)
		return "", err
	}
}

// fresh reports whether a token needs no renewal yet.
func fresh(t azcore.AccessToken, now time.Time) bool {
	return t.Token != "" && now.Before(t.ExpiresOn.Add(-tokenMargin)) && (t.RefreshOn.IsZero() || now.Before(t.RefreshOn))
}

// find returns the credential for m and its cached token.
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
