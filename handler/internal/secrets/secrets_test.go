package secrets

import "testing"

// The position of a text reveals secrets that do not look like keys.
func TestMask_RecognizesSecretsByTheirPosition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"AccountName=a;AccountKey=pw;EndpointSuffix=x":             "AccountName=a;AccountKey=***;EndpointSuffix=x",
		"Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey=p": "Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey=***",
		"GET https://a.b/c?sv=2026&sig=short&x=1 failed":           "GET https://a.b/c?sv=2026&sig=***&x=1 failed",
		"https://a.b/api/f?code=short":                             "https://a.b/api/f?code=***",
		"dial https://user:pw@a.b/c: no such host":                 "dial https://***@a.b/c: no such host",
		"the mail of somebody@example.org is kept here":            "the mail of somebody@example.org is kept here",
	} {
		if got := Mask(text); got != want {
			t.Errorf("%s is masked as %s, want %s", text, got, want)
		}
	}
}
