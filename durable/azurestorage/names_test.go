package azurestorage

import (
	"strings"
	"testing"
)

func TestValidateTrackingPrefix_AcceptsValidTableNamePrefixes(t *testing.T) {
	for prefix, valid := range map[string]bool{
		"DurableTask": true, "x": true, "A1": true, strings.Repeat("a", 54): true,
		"": false, "1a": false, "a-b": false, "\u00fcb": false, strings.Repeat("a", 55): false,
	} {
		if err := ValidateTrackingPrefix(prefix); (err == nil) != valid {
			t.Errorf("ValidateTrackingPrefix(%q) = %v, want valid %t", prefix, err, valid)
		}
	}
}

func TestValidateHubName_AcceptsNamesThatAreValidInAllServices(t *testing.T) {
	for name, valid := range map[string]bool{
		"abc":                          true,
		"TestHubName":                  true,
		"Hub2":                         true,
		"a" + strings.Repeat("1", 44):  true,
		"":                             false,
		"ab":                           false,
		"a" + strings.Repeat("1", 45):  false,
		"1abc":                         false,
		"my-hub":                       false,
		"my_hub":                       false,
		"my hub":                       false,
		"hüb1":                         false,
		"%TASKHUB%":                    false,
		"hub" + string(rune(0x0661)):   false, // a digit outside ASCII
		"hub\x00":                      false,
		strings.Repeat("\u00e9", 20):   false,
		"DurableFunctionsHub":          true,
		strings.Repeat("Z", 3):         true,
		"/" + strings.Repeat("a", 10):  false,
		strings.Repeat("a", 10) + "\n": false,
	} {
		err := ValidateHubName(name)
		if (err == nil) != valid {
			t.Errorf("ValidateHubName(%q) = %v, want valid %t", name, err, valid)
		}
		if err != nil && (!strings.Contains(err.Error(), "3 to 45") || len(name) < 30 && !strings.Contains(err.Error(), "task hub name")) {
			t.Errorf("ValidateHubName(%q) says %q, want the range and the kind of name", name, err)
		}
	}
}

// WebJobs.Extensions.DurableTask/Options/AzureStorageOptions.cs, SanitizeHubName.
func TestSanitizeHubName_MatchesTheExtension(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"valid already", "MySite", "MySite"},
		{"dashes are removed", "my-func-app", "myfuncapp"},
		{"a t precedes a leading digit", "123site", "t123site"},
		{"a t precedes a digit after removed dashes", "-1ab", "t1ab"},
		{"nothing left", "---", "DefaultTaskHub"},
		{"empty", "", "DefaultTaskHub"},
		{"too short", "ab", "abHub"},
		{"one digit", "1", "t1Hub"},
		{"too long", strings.Repeat("x", 60), strings.Repeat("x", 45)},
		{"the t counts toward the limit", "1" + strings.Repeat("x", 60), "t1" + strings.Repeat("x", 43)},
		{"letters of other scripts are kept", "sité日本", "sité日本"},
		{"letters above 16 bits are removed", "ab𝒞cd", "abcd"},
		{"numbers other than digits are removed", "site²Ⅷ", "site"},
		{"invalid UTF-8 is removed", "si\xffte", "site"},
	} {
		if got := SanitizeHubName(c.in); got != c.want {
			t.Errorf("%s: SanitizeHubName(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

func TestSanitizeHubName_ReturnsValidNamesForASCII(t *testing.T) {
	for _, in := range []string{"", "1", "ab", "my-func-app", "9-9", strings.Repeat("0", 100), "a.b.c", "~"} {
		if err := ValidateHubName(SanitizeHubName(in)); err != nil {
			t.Errorf("SanitizeHubName(%q) is invalid: %v", in, err)
		}
	}
}
