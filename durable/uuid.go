package durable

import "github.com/google/uuid"

// UUID is a universally unique identifier. [Context.NewUUID] returns one. Its JSON is a
// string such as "7d444840-9dc0-11d1-b245-5ffdce74fad2".
type UUID [16]byte

// String returns u in the form of its JSON.
func (u UUID) String() string { return uuid.UUID(u).String() }

// MarshalText returns u in the form of [UUID.String].
func (u UUID) MarshalText() ([]byte, error) { return uuid.UUID(u).MarshalText() }

// UnmarshalText parses the form of [UUID.String].
func (u *UUID) UnmarshalText(text []byte) error { return (*uuid.UUID)(u).UnmarshalText(text) }

// uuidSpace is the namespace of the UUIDs that this package derives.
var uuidSpace = uuid.MustParse("9e952958-5e33-4daf-827f-2fa12937b875")
