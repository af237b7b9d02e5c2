package azuritetest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// Damage changes the row of an instance so that it cannot be decoded. The ID must equal the row's
// key without escaping.
func Damage(ctx context.Context, t testing.TB, connection string, transport policy.Transporter, hub, id string) {
	t.Helper()
	client, err := aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: transport},
	})
	if err != nil {
		t.Fatal(err)
	}
	row, err := json.Marshal(map[string]string{"PartitionKey": id, "RowKey": "", "Tags": "{"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.NewClient(hub+"Instances").UpdateEntity(ctx, row, &aztables.UpdateEntityOptions{UpdateMode: aztables.UpdateModeMerge}); err != nil {
		t.Fatal(err)
	}
}
