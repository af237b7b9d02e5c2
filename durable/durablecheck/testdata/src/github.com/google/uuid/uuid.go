package uuid

import "crypto/rand"

type UUID [16]byte

func (u UUID) String() string              { return "" }
func New() (u UUID)                        { rand.Read(u[:]); return u }
func NewString() string                    { return New().String() }
func NewRandom() (UUID, error)             { return New(), nil }
func NewUUID() (UUID, error)               { return New(), nil }
func NewV7() (UUID, error)                 { return New(), nil }
func NewSHA1(space UUID, data []byte) UUID { return UUID{} }
func MustParse(s string) UUID              { return UUID{} }
