package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable"
)

// A fakeIdentity returns tokens that are valid for one hour. Each request takes one second.
type fakeIdentity struct {
	mu      sync.Mutex
	asked   []string // scopes and tenants of the requests
	made    []durable.ManagedIdentity
	err     error
	refresh time.Duration // refresh time of a token; 0 for none
}

func (f *fakeIdentity) credential(m durable.ManagedIdentity) (azcore.TokenCredential, error) {
	f.made = append(f.made, m)
	return f, nil
}

func (f *fakeIdentity) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	f.mu.Lock()
	f.asked = append(f.asked, strings.Join(o.Scopes, " ")+"|"+o.TenantID)
	n, err, refresh := len(f.asked), f.err, f.refresh
	f.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return azcore.AccessToken{}, ctx.Err()
	}
	if err != nil {
		return azcore.AccessToken{}, err
	}
	t := azcore.AccessToken{Token: fmt.Sprint("token ", n), ExpiresOn: time.Now().Add(time.Hour)}
	if refresh > 0 {
		t.RefreshOn = time.Now().Add(refresh)
	}
	return t, nil
}

func identityOf(f *fakeIdentity) *identityTokens {
	p := newIdentityTokens(slog.New(slog.DiscardHandler))
	p.newCredential = f.credential
	return p
}

const managementScope = "https://management.azure.com/.default"

var forManagement = durable.ManagedIdentity{Resource: managementScope}

func wantToken(t *testing.T, p *identityTokens, m durable.ManagedIdentity, want string) {
	t.Helper()
	if got, err := p.Token(t.Context(), m); err != nil || got != want {
		t.Errorf("%v: %q, %v; want %q", m, got, err, want)
	}
}

func TestIdentityTokens_AreCachedUntilFiveMinutesBeforeTheyExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := identityOf(&fakeIdentity{})
		wantToken(t, p, forManagement, "token 1")
		time.Sleep(55*time.Minute - time.Second)
		wantToken(t, p, forManagement, "token 1")
		time.Sleep(2 * time.Second)
		wantToken(t, p, forManagement, "token 2")
	})
}

func TestIdentityTokens_AreRenewedAtTheirRefreshTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := identityOf(&fakeIdentity{refresh: 10 * time.Minute})
		wantToken(t, p, forManagement, "token 1")
		time.Sleep(11 * time.Minute)
		wantToken(t, p, forManagement, "token 2")
	})
}

func TestIdentityTokens_ConcurrentCallersShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeIdentity{}
		p := identityOf(f)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { wantToken(t, p, forManagement, "token 1") })
		}
		all.Wait()
		if len(f.asked) != 1 || len(f.made) != 1 {
			t.Errorf("asked %d times of %d credentials, want once", len(f.asked), len(f.made))
		}
	})
}

func TestIdentityTokens_DifferByResourceTenantAndAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeIdentity{}
		p := identityOf(f)
		vault := durable.ManagedIdentity{Resource: "https://vault.azure.net/.default"}
		tenant := durable.ManagedIdentity{Resource: managementScope, TenantID: "t"}
		authority := durable.ManagedIdentity{Resource: managementScope, AuthorityHost: "https://login.chinacloudapi.cn"}
		for range 2 {
			for i, m := range []durable.ManagedIdentity{forManagement, vault, tenant, authority} {
				wantToken(t, p, m, fmt.Sprint("token ", i+1))
			}
		}
		if got, want := strings.Join(f.asked, ", "), managementScope+"|, https://vault.azure.net/.default|, "+managementScope+"|t, "+managementScope+"|"; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
		if len(f.made) != 3 {
			t.Errorf("made %d credentials, want one for each tenant and authority: %v", len(f.made), f.made)
		}
	})
}

func TestIdentityTokens_AreUsedUntilTheyExpireIfRenewalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeIdentity{}
		p := identityOf(f)
		wantToken(t, p, forManagement, "token 1")
		f.err = errors.New("no identity")
		time.Sleep(57 * time.Minute)
		wantToken(t, p, forManagement, "token 1")
		time.Sleep(3 * time.Minute)
		if got, err := p.Token(t.Context(), forManagement); !errors.Is(err, f.err) {
			t.Errorf("%q, %v; want %v", got, err, f.err)
		}
		f.err = nil
		wantToken(t, p, forManagement, "token 4")
	})
}

func TestIdentityTokens_TheNextCallerRequestsATokenIfOneIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := identityOf(&fakeIdentity{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := p.Token(ctx, forManagement); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
			}
		})
		synctest.Wait()
		all.Go(func() { wantToken(t, p, forManagement, "token 2") })
		all.Go(func() { // it is canceled while it waits for its turn
			if _, err := p.Token(ctx, forManagement); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
			}
		})
		all.Wait()
	})
}

func TestIdentityTokens_AreLimitedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := identityOf(&fakeIdentity{})
		for i := range maxTokens + 10 {
			wantToken(t, p, durable.ManagedIdentity{Resource: managementScope, TenantID: fmt.Sprint(i)}, fmt.Sprint("token ", i+1))
		}
		if len(p.tokens) != 10 || len(p.credentials) != 10 {
			t.Errorf("%d tokens and %d credentials are kept, want 10", len(p.tokens), len(p.credentials))
		}
	})
}

// Azure's libraries refuse an authority without TLS, because the credential would be sent there.
func TestIdentityTokens_RefuseAnAuthorityWithoutTLS(t *testing.T) {
	t.Setenv("AZURE_TENANT_ID", "t")
	t.Setenv("AZURE_CLIENT_ID", "c")
	t.Setenv("AZURE_CLIENT_SECRET", "s")
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
	_, err := newIdentityTokens(slog.New(slog.DiscardHandler)).Token(t.Context(), durable.ManagedIdentity{Resource: managementScope, AuthorityHost: "http://evil.org"})
	if err == nil || !strings.Contains(err.Error(), "an authority host without https") {
		t.Errorf("error %v, want a refusal", err)
	}
}

func TestConfig_HTTPRequestsUseTheAppsIdentityByDefault(t *testing.T) {
	t.Parallel()
	if _, ok := withIdentity(durable.Config{}, slog.Default()).HTTP.Tokens.(*identityTokens); !ok {
		t.Error("the worker has no tokens of the app's identity")
	}
	own := identityOf(&fakeIdentity{})
	if got := withIdentity(durable.Config{HTTP: durable.HTTPConfig{Tokens: own}}, slog.Default()).HTTP.Tokens; got != durable.TokenProvider(own) {
		t.Errorf("the worker has %v, want the value of the configuration", got)
	}
}
