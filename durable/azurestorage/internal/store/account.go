package store

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// Account contains the endpoints of a storage account, and the credentials to access it.
type Account struct {
	Name               string // required with Key
	Key                string // shared key, as Base64; empty if unused
	SAS                string // shared access signature, without "?"; empty if unused
	Credential         azcore.TokenCredential
	Queue, Table, Blob string // endpoints without a trailing slash; a hub that uses only blobs needs only Blob
	MissingSettings    string // settings to set for the empty endpoints, as "A, B"
}

// miss adds the setting for an empty endpoint to MissingSettings.
func (a *Account) miss(setting string) {
	if a.MissingSettings != "" {
		a.MissingSettings += ", "
	}
	a.MissingSettings += setting
}

// The account of every Azurite instance. Its key is public.
const (
	DevelopmentAccount = "devstoreaccount1"
	DevelopmentKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// defaultSuffix is the domain of storage endpoints in the public cloud.
const defaultSuffix = "core.windows.net"

// ParseAccount parses an Azure Storage connection string. Its errors do not contain the connection
// string, which includes a secret.
func ParseAccount(s string) (Account, error) {
	fields, err := connectionFields(s)
	if err != nil {
		return Account{}, err
	}
	if strings.EqualFold(fields["usedevelopmentstorage"], "true") {
		return developmentAccountAt(fields["developmentstorageproxyuri"])
	}
	c := Account{Name: fields["accountname"], Key: fields["accountkey"], SAS: strings.TrimPrefix(fields["sharedaccesssignature"], "?")}
	switch {
	case c.Key == "" && c.SAS == "":
		return Account{}, errors.New("connection string has neither AccountKey nor SharedAccessSignature")
	case c.Key != "" && c.Name == "":
		return Account{}, errors.New("connection string has an AccountKey but no AccountName")
	}
	if _, err := base64.StdEncoding.DecodeString(c.Key); err != nil {
		return Account{}, errors.New("connection string: AccountKey is not Base64")
	}
	if c.Key != "" {
		c.SAS = ""
	}
	scheme, suffix := fields["defaultendpointsprotocol"], fields["endpointsuffix"]
	if scheme == "" {
		scheme = "https"
	}
	if suffix == "" {
		suffix = defaultSuffix
	}
	for _, e := range []struct {
		service  string
		endpoint *string
	}{{"queue", &c.Queue}, {"table", &c.Table}, {"blob", &c.Blob}} {
		name := strings.ToUpper(e.service[:1]) + e.service[1:] + "Endpoint"
		given := fields[strings.ToLower(name)]
		if given == "" {
			if c.Name == "" {
				c.miss(name)
				continue
			}
			given = fmt.Sprintf("%s://%s.%s.%s", scheme, c.Name, e.service, suffix)
		}
		if *e.endpoint, err = endpoint(name, given); err != nil {
			return Account{}, fmt.Errorf("connection string: %w", err)
		}
	}
	if c.Blob == "" {
		return Account{}, fmt.Errorf("connection string has neither %s nor AccountName", c.MissingSettings)
	}
	return c, nil
}

// connectionFields returns the fields of a connection string, by name in lower case.
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

func developmentAccountAt(proxy string) (Account, error) {
	host := "http://127.0.0.1"
	if proxy != "" {
		p, err := endpoint("DevelopmentStorageProxyUri", proxy)
		if err != nil {
			return Account{}, fmt.Errorf("connection string: %w", err)
		}
		host = p
	}
	return Account{
		Name:  DevelopmentAccount,
		Key:   DevelopmentKey,
		Blob:  host + ":10000/" + DevelopmentAccount,
		Queue: host + ":10001/" + DevelopmentAccount,
		Table: host + ":10002/" + DevelopmentAccount,
	}, nil
}

// endpoint checks that value is a URL and returns it without a trailing slash.
func endpoint(name, value string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" {
		return "", fmt.Errorf("%s %q is not the address of a storage service", name, value)
	}
	return strings.TrimRight(value, "/"), nil
}

// ResolveAccount returns the storage account that the Functions host uses for the connection with the
// given name. lookup returns settings. If no setting exists for the connection, names contains the
// settings that ResolveAccount has looked up.
func ResolveAccount(name string, lookup func(string) (string, bool)) (a Account, names []string, err error) {
	names = []string{"AzureWebJobs" + name, name}
	if strings.HasPrefix(name, "AzureWebJobs") {
		names = []string{name}
	}
	for _, n := range names {
		if value, ok := lookup(n); ok && value != "" {
			if a, err = ParseAccount(value); err != nil {
				err = fmt.Errorf("setting %s: %w", n, err)
			}
			return a, nil, err
		}
		if a, found, err := identityAccount(n, lookup); found || err != nil {
			return a, nil, err
		}
	}
	return Account{}, names, nil
}

// identityAccount reads the settings of an identity-based connection. found is false if none of its
// settings exist.
func identityAccount(name string, lookup func(string) (string, bool)) (c Account, found bool, err error) {
	setting := func(suffix string) string {
		value, _ := lookup(name + "__" + suffix)
		return strings.TrimSpace(value)
	}
	accountName, suffix := setting("accountName"), setting("endpointSuffix")
	if suffix == "" {
		suffix = defaultSuffix
	}
	for _, e := range []struct {
		service  string
		endpoint *string
	}{{"queue", &c.Queue}, {"table", &c.Table}, {"blob", &c.Blob}} {
		uri := e.service + "ServiceUri"
		given := setting(uri)
		switch {
		case given != "":
			found = true
		case accountName != "":
			given = fmt.Sprintf("https://%s.%s.%s", accountName, e.service, suffix)
		default:
			c.miss(name + "__" + uri)
			continue
		}
		if *e.endpoint, err = endpoint("setting "+name+"__"+uri, given); err != nil {
			return Account{}, true, err
		}
	}
	switch {
	case !found && accountName == "":
		return Account{}, false, nil
	case c.Blob == "":
		return Account{}, true, fmt.Errorf("storage connection %q: %s not set", name, c.MissingSettings)
	}
	if c.Credential, err = tokenCredential(setting("credential"), setting("clientId")); err != nil {
		return Account{}, true, fmt.Errorf("storage connection %q: %w", name, err)
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
