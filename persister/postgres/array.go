package postgres

import "github.com/jackc/pgx/v5/pgtype"

// array is a column of a batch as a parameter of one dimension. Its elements are handed on by
// reference: a plain slice of strings costs an allocation for each.
type array[T any] []T

var _ pgtype.ArrayGetter = array[pgtype.Text](nil)

// Dimensions implements pgtype.ArrayGetter.
func (a array[T]) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(a)), LowerBound: 1}}
}

// Index implements pgtype.ArrayGetter.
func (a array[T]) Index(i int) any { return &a[i] }

// IndexType implements pgtype.ArrayGetter.
func (a array[T]) IndexType() any { return new(T) }
