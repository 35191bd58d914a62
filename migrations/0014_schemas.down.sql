drop table manifold.schema_rules, manifold.schema_versions, manifold.schema_types, manifold.schema_sets;
