package wire

import "testing"

func TestDecodePartitionRow_RejectsInvalidRows(t *testing.T) {
	for _, raw := range []string{``, `[]`, `{}`, `{"RowKey":"q","IsDraining":"yes"}`, `{"RowKey":"q","ExpiresAt":"soon"}`} {
		if got, err := DecodePartitionRow([]byte(raw)); err == nil {
			t.Errorf("%s: decoded as %+v", raw, got)
		}
	}
}

func TestPartitionRow_WithoutOwnerHasOnlyItsKeysAndFlag(t *testing.T) {
	e := PartitionRow{Queue: "hub-control-00", ETag: "not written"}.Row()
	if got, want := string(e.JSON()), `{"PartitionKey":"","RowKey":"hub-control-00","IsDraining":false}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
