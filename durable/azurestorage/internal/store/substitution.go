package store

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// substitution is a request to the table service that the SDK signs and sends instead of the request
// that it was called for.
type substitution struct {
	method      string // empty: unchanged
	url         string // empty: unchanged; the query, which may be a signature, never changes
	ifMatch     string // empty: no header
	contentType string
	body        []byte
}

type substitutionKey struct{}

// substitute returns a context that makes a call of the SDK send r.
func substitute(ctx context.Context, r substitution) context.Context {
	return context.WithValue(ctx, substitutionKey{}, r)
}

// placeholderEntity is the row that the SDK receives; the substitution replaces it.
var placeholderEntity = []byte(`{"PartitionKey":"p","RowKey":"r"}`)

// substitutionPolicy applies the substitution in a request's context. It runs before the request is
// signed.
type substitutionPolicy struct{}

// Do implements policy.Policy.
func (substitutionPolicy) Do(req *policy.Request) (*http.Response, error) {
	if s, ok := req.Raw().Context().Value(substitutionKey{}).(substitution); ok {
		if err := s.applyTo(req); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNeverSent, err)
		}
	}
	return req.Next()
}

func (s substitution) applyTo(req *policy.Request) error {
	raw := req.Raw()
	if s.method != "" {
		raw.Method = s.method
	}
	if s.url != "" {
		u, err := url.Parse(s.url)
		if err != nil {
			return err
		}
		raw.URL.Path, raw.URL.RawPath = u.Path, u.RawPath
	}
	raw.Header.Del("If-Match")
	if s.ifMatch != "" {
		raw.Header.Set("If-Match", s.ifMatch)
	}
	if s.method == http.MethodPost {
		raw.Header.Set("Prefer", "return-no-content")
	}
	return req.SetBody(streaming.NopCloser(bytes.NewReader(s.body)), s.contentType)
}
