package manifold

import "github.com/manifold-es/manifold/projection"

// DefinitionFile is a file that contains the definition of a projection.
type DefinitionFile = projection.DefinitionFile

// ReadDefinitions reads the definitions in a folder, as the setting `projections` does: see projection.ReadDefinitions.
func ReadDefinitions(folder string) ([]DefinitionFile, error) {
	return projection.ReadDefinitions(folder)
}
