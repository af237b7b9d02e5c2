package wire

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/hostile"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/uuid"
)

// DurableTask.AzureStorage/MessageManager.cs, GetNewLargeMessageBlobName.
func TestMessageBlobName_MatchesDotNet(t *testing.T) {
	id := uuid.MustParse("7fb96371-0c70-424e-9c38-a77f76c252ac")
	for instance, want := range map[string]string{
		"inst big@1": "inst big@1/message-7fb963710c70424e9c38a77f76c252ac-ExecutionStarted.json.gz",
		"a/b#c":      "a/b#c/message-7fb963710c70424e9c38a77f76c252ac-ExecutionStarted.json.gz", // not escaped
	} {
		if got := MessageBlobName(instance, id, history.TypeExecutionStarted); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCompress_RoundTrips(t *testing.T) {
	for _, text := range []string{"", "{}", strings.Repeat("é", 100_000)} {
		data, err := Compress([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decompress(data)
		if err != nil || string(got) != text {
			t.Errorf("%d bytes became %d, %v", len(text), len(got), err)
		}
	}
}

func TestDecompress_RemovesAByteOrderMark(t *testing.T) {
	data, err := Compress([]byte("\uFEFF{}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decompress(data); err != nil || string(got) != "{}" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestDecompress_StopsAtTheLimit(t *testing.T) {
	data, err := Compress(make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := DecompressUpTo(data, 1<<20); err != nil || len(got) != 1<<20 {
		t.Errorf("at the limit: %d bytes, %v", len(got), err)
	}
	if got, err := DecompressUpTo(data, 1<<20-1); err == nil || !strings.Contains(err.Error(), "more than 1048575 bytes") {
		t.Errorf("beyond the limit: %d bytes, %v", len(got), err)
	}
}

func TestDecompress_RejectsDamagedData(t *testing.T) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write([]byte(strings.Repeat("abc", 1000))); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty":     nil,
		"no gzip":   []byte("{}"),
		"cut short": buf.Bytes()[:buf.Len()-9],
		"wrong sum": append(bytes.Clone(buf.Bytes()[:buf.Len()-8]), make([]byte, 8)...),
	} {
		if got, err := Decompress(data); err == nil {
			t.Errorf("%s: %d bytes and no error", name, len(got))
		}
	}
}

// DurableTask.AzureStorage/MessageManager.cs, EscapeBlobNamePreservingSlashes.
func TestBlobURL_EscapesAsEscapeDataString(t *testing.T) {
	const container = "https://acct.blob.core.windows.net/hub-largemessages"
	for name, want := range map[string]string{
		"a/b.json.gz":           "/a/b.json.gz",
		"inst big@1/x":          "/inst%20big%401/x",
		"A-Za-z0-9-._~":         "/A-Za-z0-9-._~",
		"!*'()":                 "/%21%2A%27%28%29",
		"é日/😀":                  "/%C3%A9%E6%97%A5/%F0%9F%98%80",
		"a%2Fb?c#d&e=f+g:h;i,j": "/a%252Fb%3Fc%23d%26e%3Df%2Bg%3Ah%3Bi%2Cj",
		`a^0b\c`:                "/a%5E0b%5Cc",
	} {
		for _, base := range []string{container, container + "/"} {
			got := BlobURL(base, name)
			if got != container+want {
				t.Errorf("of %q: %s, want %s", name, got, container+want)
			}
		}
		name += ".json.gz"
		if got, ok := BlobNameFromURL(container, BlobURL(container, name)); !ok || got != name {
			t.Errorf("of %q: read back as %q, %t", name, got, ok)
		}
	}
}

// .NET downloads any URI in a row's Input or Output. Only blobs of the hub's container may be downloaded.
func TestBlobNameFromURL_AcceptsOnlyTheHubsContainer(t *testing.T) {
	const container = "https://acct.blob.core.windows.net/hub-largemessages"
	for _, c := range []struct {
		name, value, want string
	}{
		{"a message", container + "/i/message-0-ExecutionStarted.json.gz", "i/message-0-ExecutionStarted.json.gz"},
		{"a column", container + "/a%5E0b/history-1-X-0-Input.json.gz", "a^0b/history-1-X-0-Input.json.gz"},
		{"host and scheme in capitals", "HTTPS://ACCT.blob.core.windows.net/hub-largemessages/i/m.json.gz", "i/m.json.gz"},
		{"another container", "https://acct.blob.core.windows.net/hub-largemessages2/i/m.json.gz", ""},
		{"the container in capitals", "https://acct.blob.core.windows.net/HUB-largemessages/i/m.json.gz", ""},
		{"another account", "https://evil.blob.core.windows.net/hub-largemessages/i/m.json.gz", ""},
		{"a host that starts with the account's host", "https://acct.blob.core.windows.net.evil.com/hub-largemessages/i/m.json.gz", ""},
		{"a user that looks like the account's host", "https://acct.blob.core.windows.net@evil.com/hub-largemessages/i/m.json.gz", ""},
		{"another scheme", "http://acct.blob.core.windows.net/hub-largemessages/i/m.json.gz", ""},
		{"a blob of another kind", container + "/i/secret.txt", ""},
		{"a path out of the container", container + "/../other/m.json.gz", ""},
		{"an escaped path out of the container", container + "/%2e%2e/other/m.json.gz", ""},
		{"a path out of the container with an escaped slash", container + "/..%2fother/m.json.gz", ""},
		{"a query", container + "/i/m.txt?x=.json.gz", ""},
		{"a fragment", container + "/i/m.txt#.json.gz", ""},
		{"a bad escape", container + "/i/%zz.json.gz", ""},
		{"a URL followed by text", container + "/i/m and more.json.gz", ""},
		{"the container", container, ""},
		{"the container with a slash", container + "/", ""},
		{"JSON text", `"` + container + `/i/m.json.gz"`, ""},
		{"a name", "i/m.json.gz", ""},
		{"a value that looks like a URI", "stop:now", ""},
		{"nothing", "", ""},
	} {
		got, ok := BlobNameFromURL(container, c.value)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %t, want %q", c.name, got, ok, c.want)
		}
	}
}

func TestIsStartMessageBlob_DistinguishesMessagesFromValues(t *testing.T) {
	for name, want := range map[string]bool{
		"i/message-0123-ExecutionStarted.json.gz":                                    true,
		"i/history-0000000000000001-ExecutionStarted-47636789-Input.json.gz":         false,
		"i/history--Input-025DCB40-Input.json.gz":                                    false,
		"i/history-0000000000000006-ExecutionCompleted-60B72A18-Result.json.gz":      false,
		"ExecutionStarted.json.gz/history-0000000000000001-X-00000000-Input.json.gz": false,
		"i/message-54b69387af9b44749cd4dc1641a254d0-TaskCompleted.json.gz":           false,
	} {
		if got := IsStartMessageBlob(name); got != want {
			t.Errorf("of %q: %t, want %t", name, got, want)
		}
	}
}

// The expectations come from Uri.IsWellFormedUriString of .NET 9. A false positive is harmless: the value
// only gets an additional space.
func TestLooksLikeURI_FindsEveryURIOfDotNet(t *testing.T) {
	for s, want := range map[string]bool{
		"stop:now": true, "timeout:manual": true, "urn:x": true, "http://x/y": true, "mailto:a@b": true, "x-y+z.1:": true,
		"12:30": false, "a:b": false, "System.Foo: message": false, `"stop:now"`: false, `{"a":"b:c"}`: false,
		"": false, "because": false, "stop:now ": false, "1http://x": false, "ä:b": false, ":x": false, "[1:2]": false, "null": false,
	} {
		if got := looksLikeURI(s); got != want {
			t.Errorf("looksLikeURI(%q) = %t, want %t", s, got, want)
		}
	}
}

// Workers may use different endpoints of the same account.
func TestOwnBlobName_AcceptsTheInstancesBlobsAtOtherEndpoints(t *testing.T) {
	for _, container := range []string{"https://acct.blob.core.windows.net/hub-largemessages", "http://127.0.0.1:10000/acct/hub-largemessages"} {
		for value, want := range map[string]string{
			container + "/i/m.json.gz":                                                   "i/m.json.gz",
			container + "/other/m.json.gz":                                               "other/m.json.gz",
			"https://files.example.com/hub-largemessages/i/m.json.gz":                    "i/m.json.gz",
			"http://azurite:10000/acct/hub-largemessages/i/m.json.gz":                    "i/m.json.gz",
			"https://acct-secondary.blob.core.windows.net/hub-largemessages/i/m.json.gz": "i/m.json.gz",
			"https://example.com/hub-largemessages/other/m.json.gz":                      "",
			"https://example.com/hub-largemessages/i/../other/m.json.gz":                 "",
			"https://example.com/hub-largemessages/i/%2e%2e/other/m.json.gz":             "",
			"https://example.com/hub-largemessages/i/m.txt":                              "",
			"https://example.com/a/b/hub-largemessages/i/m.json.gz":                      "",
			"https://example.com/hub-largemessages2/i/m.json.gz":                         "",
			"https://example.com/hub-largemessages":                                      "",
			"ftp://example.com/hub-largemessages/i/m.json.gz":                            "",
			"stop:now": "", "": "",
		} {
			if got, ok := OwnBlobName(container, "i", value); got != want && ok || ok != (want != "") {
				t.Errorf("%s: %q, %t, want %q", value, got, ok, want)
			}
		}
	}
}

// Every part of a blob's URL must match as a whole: scheme, host, account, container and instance.
func TestBlobNames_ThatResembleTrustedOnesAreRefused(t *testing.T) {
	const host, account, container, instance = "acct.blob.core.windows.net", "acct", "hub-largemessages", "order-1"
	const azure, emulator = "https://" + host + "/" + container, "http://127.0.0.1:10000/" + account + "/" + container
	const blob = "/" + instance + "/m.json.gz"
	below := func(trusted string) func(string) bool {
		return func(name string) bool { return strings.HasPrefix(name, trusted+"/") }
	}
	fromURL := func(hub, format string) func(string) bool {
		return func(name string) bool {
			_, ok := BlobNameFromURL(hub, fmt.Sprintf(format, name))
			return ok
		}
	}
	own := func(hub, format string) func(string) bool {
		return func(name string) bool {
			_, ok := OwnBlobName(hub, instance, fmt.Sprintf(format, name))
			return ok
		}
	}
	for _, check := range []struct {
		name, trusted string
		names         func(string) []string
		accepts       func(string) bool
		allowed       func(string) bool
	}{
		{"the scheme", "https", hostile.Names, fromURL(azure, "%s://"+host+"/"+container+blob), nil},
		{"the host", host, hostile.Names, fromURL(azure, "https://%s/"+container+blob), nil},
		{"the host of an emulator", "127.0.0.1:10000", hostile.Names, fromURL(emulator, "http://%s/"+account+"/"+container+blob), nil},
		{"the account of an emulator", account, hostile.Names, fromURL(emulator, "http://127.0.0.1:10000/%s/"+container+blob), nil},
		{"the container", container, hostile.Names, fromURL(azure, "https://"+host+"/%s"+blob), below(container)},
		{"the container of an emulator", container, hostile.Names, fromURL(emulator, "http://127.0.0.1:10000/"+account+"/%s"+blob), below(container)},
		{"the end of the name", ".json.gz", hostile.Names, fromURL(azure, azure+"/"+instance+"/m%s"), func(name string) bool {
			return strings.HasSuffix(name, ".json.gz") && !strings.ContainsAny(name, `?# "`)
		}},
		{"the container at another endpoint", container, hostile.Names, own(azure, "https://other.example/%s"+blob), func(name string) bool {
			return strings.HasSuffix(name, "/"+container) && strings.Count(name, "/") == 1 // the rest is an account
		}},
		{"the instance at another endpoint", instance, hostile.Names, own(azure, "https://other.example/"+container+"/%s/m.json.gz"), nil},
	} {
		hostile.NoneOf(t, check.name, check.trusted, check.names(check.trusted), check.accepts, check.allowed)
	}
}
