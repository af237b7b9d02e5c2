package azurestorage

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// A Connection says where a storage account is and how to prove who is asking.
// Make one with [ParseConnectionString] or [ResolveConnection]. The zero value
// leads nowhere.
type Connection struct {
	account            string // name, needed to sign with key
	key                string // shared key, Base64; empty if there is none
	sas                string // shared access signature, without "?"; empty if there is none
	credential         azcore.TokenCredential
	queue, table, blob string // endpoints without a slash at the end

	tracking *Connection // to the account with the tables and blobs; nil if that is this one
}

// WithTrackingStore returns a connection to a hub that is in two accounts: its
// queues in c's, its tables and blobs in that of tracking. So .NET divides a hub
// that has a tracking store
// (DurableTask.AzureStorage/Storage/AzureStorageClient.cs, constructor). The
// tables of histories and instances have other names then; see
// [Config.TrackingStoreNamePrefix].
func (c Connection) WithTrackingStore(tracking Connection) Connection {
	tracking.tracking = nil
	c.tracking = &tracking
	return c
}

// store returns the connection to the account that has the tables and blobs.
func (c Connection) store() Connection {
	if c.tracking != nil {
		return *c.tracking
	}
	return c
}

// The account that every Azurite has. Its key is public.
const (
	developmentAccount = "devstoreaccount1"
	developmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// ParseConnectionString reads an Azure Storage connection string: one with an
// account and its key, one with endpoints and a shared access signature, or
// "UseDevelopmentStorage=true" for Azurite on its usual ports. Errors do not
// repeat the text, since it holds a secret.
func ParseConnectionString(s string) (Connection, error) {
	fields, err := connectionFields(s)
	if err != nil {
		return Connection{}, err
	}
	if strings.EqualFold(fields["usedevelopmentstorage"], "true") {
		return developmentConnection(fields["developmentstorageproxyuri"])
	}
	c := Connection{account: fields["accountname"], key: fields["accountkey"], sas: strings.TrimPrefix(fields["sharedaccesssignature"], "?")}
	switch {
	case c.key == "" && c.sas == "":
		return Connection{}, errors.New("connection string has neither AccountKey nor SharedAccessSignature")
	case c.key != "" && c.account == "":
		return Connection{}, errors.New("connection string has an AccountKey but no AccountName")
	}
	if _, err := base64.StdEncoding.DecodeString(c.key); err != nil {
		return Connection{}, errors.New("connection string: AccountKey is not Base64")
	}
	if c.key != "" {
		c.sas = ""
	}
	scheme, suffix := fields["defaultendpointsprotocol"], fields["endpointsuffix"]
	if scheme == "" {
		scheme = "https"
	}
	if suffix == "" {
		suffix = "core.windows.net"
	}
	for _, e := range []struct {
		service  string
		endpoint *string
	}{{"queue", &c.queue}, {"table", &c.table}, {"blob", &c.blob}} {
		name := strings.ToUpper(e.service[:1]) + e.service[1:] + "Endpoint"
		given := fields[strings.ToLower(name)]
		if given == "" {
			if c.account == "" {
				return Connection{}, fmt.Errorf("connection string has neither %s nor AccountName", name)
			}
			given = fmt.Sprintf("%s://%s.%s.%s", scheme, c.account, e.service, suffix)
		}
		if *e.endpoint, err = endpoint(name, given); err != nil {
			return Connection{}, fmt.Errorf("connection string: %w", err)
		}
	}
	return c, nil
}

// connectionFields returns the fields of a connection string by their names in
// lower case.
func connectionFields(s string) (map[string]string, error) {
	fields := map[string]string{}
	for part := range strings.SplitSeq(s, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		if !found {
			return nil, errors.New("connection string: want Name=value fields with semicolons between them")
		}
		fields[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	if len(fields) == 0 {
		return nil, errors.New("connection string is empty")
	}
	return fields, nil
}

func developmentConnection(proxy string) (Connection, error) {
	host := "http://127.0.0.1"
	if proxy != "" {
		p, err := endpoint("DevelopmentStorageProxyUri", proxy)
		if err != nil {
			return Connection{}, fmt.Errorf("connection string: %w", err)
		}
		host = p
	}
	return Connection{
		account: developmentAccount,
		key:     developmentKey,
		blob:    host + ":10000/" + developmentAccount,
		queue:   host + ":10001/" + developmentAccount,
		table:   host + ":10002/" + developmentAccount,
	}, nil
}

// endpoint checks that value is an address and returns it without a slash at
// the end.
func endpoint(name, value string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return "", fmt.Errorf("%s %q is not the address of a storage service", name, value)
	}
	return strings.TrimRight(value, "/"), nil
}

// ResolveConnection finds the connection that the Functions host would use
// under the given name, among settings that lookup knows, such as
// [os.LookupEnv]. "AzureWebJobs" + name is tried before name alone. Each may be
// a connection string, or the beginning of the names of settings for an
// identity-based connection: __accountName or __blobServiceUri,
// __queueServiceUri and __tableServiceUri, with __credential "managedidentity"
// and __clientId for a managed identity, without for the default chain of
// credentials. An error says which settings were looked for; it is
// [ErrNoConnection] if none of them is set.
func ResolveConnection(name string, lookup func(string) (string, bool)) (Connection, error) {
	names := []string{"AzureWebJobs" + name, name}
	if strings.HasPrefix(name, "AzureWebJobs") {
		names = []string{name}
	}
	for _, n := range names {
		if value, ok := lookup(n); ok && value != "" {
			c, err := ParseConnectionString(value)
			if err != nil {
				return Connection{}, fmt.Errorf("setting %s: %w", n, err)
			}
			return c, nil
		}
		c, found, err := identityConnection(n, lookup)
		if err != nil {
			return Connection{}, err
		}
		if found {
			return c, nil
		}
	}
	return Connection{}, fmt.Errorf("%w named %q: none of the settings %s is set to a connection string; nor, for an identity, one of these names "+
		"with __accountName added, or with each of __queueServiceUri, __tableServiceUri and __blobServiceUri",
		ErrNoConnection, name, strings.Join(names, ", "))
}

// ErrNoConnection says that there are no settings for a storage connection.
var ErrNoConnection = errors.New("no storage connection")

// identityConnection reads the settings of an identity-based connection. found
// is false if there are none at all.
func identityConnection(name string, lookup func(string) (string, bool)) (c Connection, found bool, err error) {
	setting := func(suffix string) string {
		value, _ := lookup(name + "__" + suffix)
		return strings.TrimSpace(value)
	}
	account := setting("accountName")
	var missing []string
	for _, e := range []struct {
		service  string
		endpoint *string
	}{{"queue", &c.queue}, {"table", &c.table}, {"blob", &c.blob}} {
		suffix := e.service + "ServiceUri"
		given := setting(suffix)
		switch {
		case given != "":
			found = true
		case account != "":
			given = fmt.Sprintf("https://%s.%s.core.windows.net", account, e.service)
		default:
			missing = append(missing, name+"__"+suffix)
			continue
		}
		if *e.endpoint, err = endpoint("setting "+name+"__"+suffix, given); err != nil {
			return Connection{}, true, err
		}
	}
	switch {
	case !found && account == "":
		return Connection{}, false, nil
	case len(missing) > 0:
		return Connection{}, true, fmt.Errorf("storage connection %q: %s not set", name, strings.Join(missing, ", "))
	}
	if c.credential, err = tokenCredential(setting("credential"), setting("clientId")); err != nil {
		return Connection{}, true, fmt.Errorf("storage connection %q: %w", name, err)
	}
	return c, true, nil
}

func tokenCredential(kind, clientID string) (azcore.TokenCredential, error) {
	switch {
	case kind == "":
		return azidentity.NewDefaultAzureCredential(nil)
	case strings.EqualFold(kind, "managedidentity"):
		var options azidentity.ManagedIdentityCredentialOptions
		if clientID != "" {
			options.ID = azidentity.ClientID(clientID)
		}
		return azidentity.NewManagedIdentityCredential(&options)
	}
	return nil, fmt.Errorf("credential is %q; want managedidentity, or none for the default chain", kind)
}
