-- @view string: manifold_documents.[order-summary]
select case when object_id(@view) is null then 0 else 1 end, coalesce(object_definition(object_id(@view)), N'');

-- and then

create view manifold_documents.[order-summary] as select t.tenant_id, t.id, t.version, t.document from manifold_documents.[order-summary.12] as t where t.id_bytes > 0x;

-- and then

alter view manifold_documents.[order-summary] as select t.tenant_id, t.id, t.version, t.document from manifold_documents.[order-summary.12] as t where t.id_bytes > 0x;
