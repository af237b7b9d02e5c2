package durable_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/go-cmp/cmp"
)

// sameJSON fails the test unless the two texts are equal as JSON.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v in %s", err, got)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%v in %s", err, want)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("JSON (-got +want):\n%s", cmp.Diff(g, w))
	}
}

// The input of the activity must equal the extension's. The first two texts are from
// its test/Common/DurableHttpTests.cs, SerializeManagedIdentityOptions and
// SerializeDurableHttpRequestWithoutManagedIdentityOptions; only the resource differs,
// because it is a scope here. The other texts follow DurableHttpRequest.cs,
// HttpHeadersConverter.cs and HttpRetryOptions.cs as encoded by Newtonsoft.
func TestCallHTTP_SchedulesTheSameInputAsTheExtension(t *testing.T) {
	t.Parallel()
	get := durable.HTTPRequest{URL: "https://www.dummy-url.com", Header: http.Header{"Accept": {"application/json"}}}
	for _, c := range []struct {
		name   string
		change func(*durable.HTTPRequest)
		opts   []durable.ActivityOption
		want   string
	}{
		{
			"with a managed identity and options",
			func(r *durable.HTTPRequest) {
				r.TokenSource = &durable.ManagedIdentity{Resource: "dummy url", AuthorityHost: "https://dummy.login.microsoftonline.com/", TenantID: "tenant_id"}
			},
			nil,
			`[{
  "method": "GET",
  "uri": "https://www.dummy-url.com",
  "headers": {"Accept": "application/json"},
  "content": null,
  "tokenSource": {
    "kind": "AzureManagedIdentity",
    "resource": "dummy url/.default",
    "options": {"authorityhost": "https://dummy.login.microsoftonline.com/", "tenantid": "tenant_id"}
  },
  "asynchronousPatternEnabled": true,
  "retryOptions": null,
  "timeout": null
}]`,
		},
		{
			"with a managed identity",
			func(r *durable.HTTPRequest) {
				r.TokenSource = &durable.ManagedIdentity{Resource: "https://management.core.windows.net/"}
			},
			nil,
			`[{
  "method": "GET",
  "uri": "https://www.dummy-url.com",
  "headers": {"Accept": "application/json"},
  "content": null,
  "tokenSource": {"kind": "AzureManagedIdentity", "resource": "https://management.core.windows.net/.default"},
  "asynchronousPatternEnabled": true,
  "retryOptions": null,
  "timeout": null
}]`,
		},
		{
			"with all the rest",
			func(r *durable.HTTPRequest) {
				r.Method, r.Content, r.NoPolling = "POST", `{"a":"<é>"}`, true
				r.Header = http.Header{"accept": {"a/b"}, "Accept": {"c/d"}, "X-Ms-Foo": {}}
				r.Timeout, r.TotalTimeout, r.PollInterval = 61500*time.Millisecond, time.Hour, time.Second
				r.RetryStatus = []int{429, 503}
			},
			[]durable.ActivityOption{durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second}},
			`[{
  "method": "POST",
  "uri": "https://www.dummy-url.com",
  "headers": {"Accept": ["c/d", "a/b"], "X-Ms-Foo": []},
  "content": "{\"a\":\"<é>\"}",
  "tokenSource": null,
  "asynchronousPatternEnabled": false,
  "retryOptions": {
    "FirstRetryInterval": "00:00:01",
    "MaxRetryInterval": "6.00:00:00",
    "BackoffCoefficient": 1.0,
    "RetryTimeout": "10675199.02:48:05.4775807",
    "MaxNumberOfAttempts": 3,
    "StatusCodesToRetry": [429, 503]
  },
  "timeout": "00:01:01.5000000"
}]`,
		},
		{
			// Without status codes, .NET's activity would fail for all codes except 2xx.
			"with a policy for requests without a response",
			func(*durable.HTTPRequest) {},
			[]durable.ActivityOption{durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second, RetryTimeout: time.Hour}},
			`[{
  "method": "GET",
  "uri": "https://www.dummy-url.com",
  "headers": {"Accept": "application/json"},
  "content": null,
  "tokenSource": null,
  "asynchronousPatternEnabled": true,
  "retryOptions": null,
  "timeout": null
}]`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := get
			c.change(&r)
			s := stage(t, func(ctx *durable.Context, _ durable.Void) (int, error) {
				resp, err := durable.CallHTTP(ctx, r, c.opts...).Await()
				return resp.StatusCode, err
			})
			task, ok := s.Start(nil)[0].(*replay.ScheduleTask)
			if !ok || task.Name != "BuiltIn::HttpActivity" {
				t.Fatalf("the first action is %#v, want the HTTP activity", s.Actions[0])
			}
			sameJSON(t, *task.Input, c.want)
			if strings.Contains(*task.Input, `\u003c`) {
				t.Error("the payload escapes <")
			}
		})
	}
}

// The first text is from DurableHttpTests.cs, DeserializeCallActivity. Isolated .NET
// and JavaScript write the other texts
// (Worker.Extensions.DurableTask/HTTP/HttpHeadersConverter.cs).
func TestHTTPRequest_DecodesTheFormatsOfTheExtension(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       durable.HTTPRequest
	}{
		{
			"a call of a JavaScript orchestrator",
			`{"method": "POST", "uri": "https://example.com", "headers": {"Content-Type": "application/json", "Accept": ["application/json", "application/xml"], "x-ms-foo": []}, "content": "5"}`,
			durable.HTTPRequest{Method: "POST", URL: "https://example.com", Content: "5", Header: http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json", "application/xml"}, "X-Ms-Foo": nil,
			}},
		},
		{"a URL only", `{"uri":"http://a"}`, durable.HTTPRequest{Method: "GET", URL: "http://a"}},
		{
			"nulls",
			`{"method":null,"uri":"http://a","headers":null,"content":null,"tokenSource":null,"asynchronousPatternEnabled":true,"retryOptions":null,"timeout":null}`,
			durable.HTTPRequest{Method: "GET", URL: "http://a", Header: http.Header{}},
		},
		{
			"other spellings and more members",
			`{"Method":"put","URI":"http://a","Headers":{"A":null,"a":"1"},"AsynchronousPatternEnabled":false,"timeout":"1.02:03:04.0000005","more":{}}`,
			durable.HTTPRequest{Method: "put", URL: "http://a", Header: http.Header{"A": {"1"}}, NoPolling: true, Timeout: 26*time.Hour + 3*time.Minute + 4*time.Second + 500},
		},
		{
			"an endless timeout, and retries",
			`{"uri":"http://a","timeout":"10675199.02:48:05.4775807","retryOptions":{"StatusCodesToRetry":[404],"MaxNumberOfAttempts":3}}`,
			durable.HTTPRequest{Method: "GET", URL: "http://a", Timeout: 1<<63 - 1, RetryStatus: []int{404}},
		},
		{
			"a token source",
			`{"uri":"http://a","tokenSource":{"kind":"AzureManagedIdentity","resource":"r","options":{"authorityhost":null,"tenantid":"t"}}}`,
			durable.HTTPRequest{Method: "GET", URL: "http://a", TokenSource: &durable.ManagedIdentity{Resource: "r", TenantID: "t"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got durable.HTTPRequest
			if err := json.Unmarshal([]byte(c.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("request (-got +want):\n%s", diff)
			}
		})
	}
}

func TestHTTPRequest_RejectsInvalidJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"uri":5}`:                                                  "cannot unmarshal number",
		`{"uri":"http://a","timeout":"5 s"}`:                         `timeout: "5 s" is not a time span`,
		`{"uri":"http://a","timeout":"-00:01:00"}`:                   "is not a time span",
		`{"uri":"http://a","timeout":"25:00:00"}`:                    "must not exceed 23:59:59",
		`{"uri":"http://a","headers":{"a":[1]}}`:                     "header a: ",
		`{"uri":"http://a","tokenSource":{"kind":"Other"}}`:          `the token source kind '"Other"' is not supported`,
		`{"uri":"http://a","tokenSource":{"$type":"My.Source, My"}}`: "of type My.Source, My, which exists in .NET only",
	} {
		var r durable.HTTPRequest
		if err := json.Unmarshal([]byte(text), &r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// The texts follow DurableHttpResponse.cs. A worker of isolated .NET joins values with
// commas.
func TestHTTPResponse_UsesTheFormatOfTheExtension(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       durable.HTTPResponse
	}{
		{
			"headers",
			`{"statusCode":200,"headers":{"Host":["test.host.com","test.response.com"],"Server":"x"},"content":"test <content>"}`,
			durable.HTTPResponse{StatusCode: 200, Header: http.Header{"Host": {"test.host.com", "test.response.com"}, "Server": {"x"}}, Content: "test <content>"},
		},
		{"no content", `{"statusCode":204,"headers":{},"content":""}`, durable.HTTPResponse{StatusCode: 204, Header: http.Header{}}},
		{
			"not text",
			`{"statusCode":200,"headers":{},"content":"\ufffdPNG","contentBytes":"iVBORw=="}`,
			durable.HTTPResponse{StatusCode: 200, Header: http.Header{}, Content: "\x89PNG"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got durable.HTTPResponse
			if err := json.Unmarshal([]byte(c.text), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("response (-got +want):\n%s", diff)
			}
			back, err := json.Marshal(c.want)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, string(back), c.text)
		})
	}
	var null durable.HTTPResponse
	if err := json.Unmarshal([]byte(`{"statusCode":500,"headers":null,"content":null}`), &null); err != nil || null.StatusCode != 500 {
		t.Errorf("%v, %v; want status 500", null, err)
	}
	if err := json.Unmarshal([]byte(`{"contentBytes":"*"}`), &null); err == nil {
		t.Error("decoding accepted invalid base64")
	}
}

func FuzzHTTPRequest(f *testing.F) {
	f.Add(`{"method":"POST","uri":"http://a","headers":{"A":["b","c"],"d":"e"},"content":"x","tokenSource":{"kind":"AzureManagedIdentity","resource":"r","options":{"tenantid":"t"}},"asynchronousPatternEnabled":false,"timeout":"1.02:03:04.5"}`)
	f.Add(`{"headers":[],"timeout":"10675199.02:48:05.4775807"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var r, again durable.HTTPRequest
		if json.Unmarshal([]byte(text), &r) != nil {
			return
		}
		back, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(back, &again); err != nil {
			t.Fatalf("%v in %s", err, back)
		}
		r.RetryStatus, again.RetryStatus = nil, nil // RetryStatus belongs to the policy
		if r.Header == nil {
			r.Header = http.Header{}
		}
		if r.TokenSource != nil {
			r.TokenSource.Resource = again.TokenSource.Resource // the resource is encoded as a scope
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("%s changed when encoded and decoded again (-once +twice):\n%s", text, diff)
		}
	})
}

func FuzzHTTPResponse(f *testing.F) {
	f.Add(`{"statusCode":200,"headers":{"A":["b","c"],"d":"e"},"content":"x"}`)
	f.Add(`{"statusCode":-1,"content":null,"contentBytes":"//4A"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var r, again durable.HTTPResponse
		if json.Unmarshal([]byte(text), &r) != nil {
			return
		}
		back, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(back, &again); err != nil {
			t.Fatalf("%v in %s", err, back)
		}
		if r.Header == nil {
			r.Header = http.Header{}
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Errorf("%s changed when encoded and decoded again (-once +twice):\n%s", text, diff)
		}
	})
}
