package eventjson

var CutAssembly = cutAssembly

// ReadInt returns a member as the integer field of an event.
func ReadInt(e *Event, name string) (v *int) {
	reader{e}.OptionalInt(name, &v)
	return v
}
