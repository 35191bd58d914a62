-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @id mssql.VarCharMax: 61
set nocount on;
set lock_timeout 10000;
select t.id_bytes, t.version, convert(nvarchar(max), t.document) as document from manifold_documents.[order-summary.12] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = convert(varbinary(513), @id, 2);
