package differential_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// columns returns an entity as text, without values that are unique to an account.
func columns(raw []byte) string {
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, "odata.") && !strings.HasPrefix(name, "Timestamp") {
			fmt.Fprintf(&b, "%s=%v ", name, all[name])
		}
	}
	return b.String()
}

func entityScript(ctx context.Context, a *account, name string) {
	t := a.tables.NewClient(name)
	_, err := t.AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":"r"}`), nil)
	a.note("insert where there is no table", err)
	for range 2 {
		_, err = t.CreateTable(ctx, nil)
		a.note("create", err)
	}
	_, err = a.tables.NewClient(strings.ToUpper(name)).CreateTable(ctx, nil)
	a.note("create in upper case", err)
	get := func(step, partition, row string) azcore.ETag {
		format := aztables.MetadataFormatMinimal
		resp, err := t.GetEntity(ctx, partition, row, &aztables.GetEntityOptions{Format: &format})
		a.note(step, err)
		if err == nil {
			a.note(step, nil, columns(resp.Value))
		}
		return resp.ETag
	}
	all := `{"PartitionKey":"p","RowKey":"r","Text":"a 'b' \"c\" <&> ä😀","Int":7,"Yes":true,"Float":1.5,"None":null,` +
		`"Long":"9007199254740993","Long@odata.type":"Edm.Int64","At":"2026-01-02T03:04:05.1234567Z","At@odata.type":"Edm.DateTime",` +
		`"Id":"11111111-1111-4111-8111-111111111111","Id@odata.type":"Edm.Guid","Raw":"AAEC","Raw@odata.type":"Edm.Binary"}`
	_, err = t.AddEntity(ctx, []byte(all), nil)
	a.note("insert", err)
	_, err = t.AddEntity(ctx, []byte(all), nil)
	a.note("insert again", err)
	etag := get("get", "p", "r")
	get("get what is not there", "p", "none")
	update := func(step, entity string, mode aztables.UpdateMode, etag *azcore.ETag) {
		_, err := t.UpdateEntity(ctx, []byte(entity), &aztables.UpdateEntityOptions{UpdateMode: mode, IfMatch: etag})
		a.note(step, err)
	}
	update("merge", `{"PartitionKey":"p","RowKey":"r","Int":8,"Text":null,"More":"m"}`, aztables.UpdateModeMerge, &etag)
	update("merge with an old ETag", `{"PartitionKey":"p","RowKey":"r","Int":9}`, aztables.UpdateModeMerge, &etag)
	get("get what was merged", "p", "r")
	update("replace with any ETag", `{"PartitionKey":"p","RowKey":"r","Only":"this"}`, aztables.UpdateModeReplace, new(azcore.ETagAny))
	get("get what was replaced", "p", "r")
	update("merge what is not there", `{"PartitionKey":"p","RowKey":"none","A":1}`, aztables.UpdateModeMerge, new(azcore.ETagAny))
	for _, mode := range []aztables.UpdateMode{aztables.UpdateModeMerge, aztables.UpdateModeReplace} {
		_, err = t.UpsertEntity(ctx, fmt.Appendf(nil, `{"PartitionKey":"p","RowKey":"it's %s, 100%% (a+b)","A":1}`, mode), &aztables.UpsertEntityOptions{UpdateMode: mode})
		a.note("upsert", err)
		get("get what was upserted", "p", fmt.Sprintf("it's %s, 100%% (a+b)", mode))
	}
	_, err = t.AddEntity(ctx, fmt.Appendf(nil, `{"PartitionKey":"p","RowKey":"big","A":%q}`, strings.Repeat("x", 32769)), nil)
	a.note("insert a text that is too long", err)
	_, err = t.AddEntity(ctx, fmt.Appendf(nil, `{"PartitionKey":"p","RowKey":"big","A":%q}`, strings.Repeat("x", 32768)), nil)
	a.note("insert a text that just fits", err)
	_, err = t.AddEntity(ctx, []byte(`{"PartitionKey":"p","RowKey":"a#b"}`), nil)
	a.note("insert a key that may not be", err)
	_, err = t.DeleteEntity(ctx, "p", "r", &aztables.DeleteEntityOptions{IfMatch: &etag})
	a.note("delete with an old ETag", err)
	_, err = t.DeleteEntity(ctx, "p", "r", nil)
	a.note("delete", err)
	_, err = t.DeleteEntity(ctx, "p", "r", nil)
	a.note("delete again", err)
	_, err = t.Delete(ctx, nil)
	a.note("delete the table", err)
	_, err = t.Delete(ctx, nil)
	a.note("delete the table again", err)
}

func transactionScript(ctx context.Context, a *account, name string) {
	t := a.tables.NewClient(name)
	_, err := t.CreateTable(ctx, nil)
	a.note("create", err)
	action := func(kind aztables.TransactionType, row, more string, etag *azcore.ETag) aztables.TransactionAction {
		return aztables.TransactionAction{ActionType: kind, IfMatch: etag, Entity: fmt.Appendf(nil, `{"PartitionKey":"p","RowKey":%q%s}`, row, more)}
	}
	transact := func(step string, actions ...aztables.TransactionAction) {
		_, err := t.SubmitTransaction(ctx, actions, nil)
		a.note(step, err)
		listAll(ctx, a, t, "")
	}
	anyTag, old := azcore.ETagAny, azcore.ETag(`W/"datetime'2020-01-01T00%3A00%3A00.0000000Z'"`)
	transact("insert", action(aztables.TransactionTypeAdd, "1", `,"A":1`, nil), action(aztables.TransactionTypeAdd, "2", `,"A":2`, nil))
	transact("insert what is there", action(aztables.TransactionTypeAdd, "3", "", nil), action(aztables.TransactionTypeAdd, "1", "", nil))
	transact("insert or change", action(aztables.TransactionTypeInsertReplace, "3", `,"B":1`, nil), action(aztables.TransactionTypeInsertMerge, "1", `,"B":2`, nil))
	transact("change with an old ETag", action(aztables.TransactionTypeInsertReplace, "4", "", nil), action(aztables.TransactionTypeUpdateMerge, "1", `,"C":1`, &old))
	transact("change what is not there", action(aztables.TransactionTypeUpdateMerge, "9", `,"C":1`, &anyTag), action(aztables.TransactionTypeAdd, "8", "", nil))
	transact("change a row twice", action(aztables.TransactionTypeInsertMerge, "1", "", nil), action(aztables.TransactionTypeInsertMerge, "1", "", nil))
	transact("delete what is not there", action(aztables.TransactionTypeDelete, "1", "", &anyTag), action(aztables.TransactionTypeDelete, "9", "", &anyTag))
	transact("delete", action(aztables.TransactionTypeDelete, "1", "", &anyTag), action(aztables.TransactionTypeUpdateReplace, "2", `,"A":9`, &anyTag))
	var many []aztables.TransactionAction
	for i := range 100 {
		many = append(many, action(aztables.TransactionTypeInsertReplace, fmt.Sprintf("%04d", i), "", nil))
	}
	transact("a hundred", many...)
}

// listAll records all entities that match a filter, in pages of three.
func listAll(ctx context.Context, a *account, t *aztables.Client, filter string) {
	format := aztables.MetadataFormatMinimal
	options := &aztables.ListEntitiesOptions{Format: &format, Top: new(int32(3))}
	if filter != "" {
		options.Filter = &filter
	}
	for pages := t.NewListEntitiesPager(options); pages.More(); {
		page, err := pages.NextPage(ctx)
		a.note("list "+filter, err, len(page.Entities))
		if err != nil {
			return
		}
		for _, e := range page.Entities {
			a.note("entity", nil, columns(e))
		}
	}
}

func filterScript(ctx context.Context, a *account, name string) {
	t := a.tables.NewClient(name)
	_, err := t.CreateTable(ctx, nil)
	a.note("create", err)
	for i := range 7 {
		e := fmt.Appendf(nil, `{"PartitionKey":"p%d","RowKey":"it's %d","N":%d,"Even":%t,"Name":"n%d","L":"%d","L@odata.type":"Edm.Int64",`+
			`"At":"2026-01-0%dT00:00:00Z","At@odata.type":"Edm.DateTime","F":%d.5}`, i%2, i, i, i%2 == 0, i, i, i+1, i)
		_, err := t.AddEntity(ctx, e, nil)
		a.note("insert", err)
	}
	for _, filter := range []string{
		"PartitionKey eq 'p1'", "PartitionKey eq 'p1' and RowKey eq 'it''s 3'", "N gt 2 and N le 5", "N lt 2 or N ge 6", "not (N eq 3)",
		"(Name eq 'n1' or Name eq 'n2') and PartitionKey ge 'p' and PartitionKey lt 'q'", "Even eq true", "L ge 5L", "F gt 3.25",
		"At ge datetime'2026-01-04T00:00:00.0000000Z'", "Name ne 'n1'", "Missing eq 'x'", "Missing ne 'x'",
		"PartitionKey lt '@' or PartitionKey ge 'A'", "PartitionKey eq 'p0' and (RowKey eq 'sentinel' or Name eq 'n4')",
		"startswith(Name,'n')", "Name eq",
	} {
		listAll(ctx, a, t, filter)
	}
	selected := "N,Missing,RowKey"
	page, err := t.NewListEntitiesPager(&aztables.ListEntitiesOptions{Select: &selected}).NextPage(ctx)
	a.note("select", err, len(page.Entities))
	for _, e := range page.Entities {
		a.note("selected", nil, columns(e))
	}
}
