package leases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

func TestSentAt_IsTheDateOfTheResponse(t *testing.T) {
	for _, c := range []struct {
		date string
		want time.Time
	}{
		{"Fri, 20 Nov 2026 18:35:00 GMT", time.Date(2026, 11, 20, 18, 35, 0, 0, time.UTC)},
		{"", passTime},
		{"yesterday", passTime},
	} {
		if got := sentAt(&http.Response{Header: http.Header{"Date": {c.date}}}, passTime); !got.Equal(c.want) {
			t.Errorf("sentAt of a response with the date %q = %v, want %v", c.date, got, c.want)
		}
	}
	if got := sentAt(nil, passTime); !got.Equal(passTime) {
		t.Errorf("sentAt without a response = %v, want %v", got, passTime)
	}
}

// transport is a transport that is a function.
type transport func(*http.Request) (*http.Response, error)

// Do implements policy.Transporter.
func (t transport) Do(r *http.Request) (*http.Response, error) { return t(r) }

// A lease that has expired must not be valid in a later response of the same second, although the
// worker may read its own clock sooner after this response.
func TestOwnedRows_AreTheSameForTheSameDate(t *testing.T) {
	sent := time.Now().UTC().Truncate(time.Second)
	type row struct {
		RowKey, CurrentOwner string
		ExpiresAt            time.Time
	}
	var rows []row
	for i := range 2000 { // leases that expire within 200 microseconds of the Date
		rows = append(rows, row{fmt.Sprint(i), "w", sent.Add(time.Duration(i+1) * 100 * time.Nanosecond)})
	}
	body, err := json.Marshal(map[string]any{"value": rows})
	if err != nil {
		t.Fatal(err)
	}
	const endpoint = "https://account.table.core.windows.net"
	service, err := aztables.NewServiceClientWithNoCredential(endpoint, &aztables.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(bytes.NewReader(body)),
				Header: http.Header{"Date": {sent.Format(http.TimeFormat)}, "Content-Type": {"application/json"}},
			}, nil
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{Table: store.NewTable(service, endpoint, "Partitions")}
	for range 20 {
		valid, err := w.OwnedRows(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(valid) != len(rows) {
			t.Errorf("%d of %d leases are valid; want all, because they expire after the Date of the response", len(valid), len(rows))
		}
	}
}
