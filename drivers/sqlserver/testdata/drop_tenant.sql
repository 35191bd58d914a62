-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
set nocount on;
set lock_timeout 10000;
set xact_abort on;
delete t from manifold_documents.[documents] as t with (updlock, rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x;

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @after mssql.VarCharMax: 
set nocount on;
set lock_timeout 10000;
set xact_abort on;
declare @after_bytes varbinary(512) = convert(varbinary(512), @after, 2);
declare @last_bytes varbinary(512) = (select top (1) s.id_bytes from (
select top (1000) t.id_bytes from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes > @after_bytes order by t.id_bytes) as s order by s.id_bytes desc);
delete t from manifold_documents.[documents] as t with (rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes > @after_bytes and t.id_bytes <= @last_bytes;
select @last_bytes;

-- and then

-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @after mssql.VarCharMax: 6c617374
set nocount on;
set lock_timeout 10000;
set xact_abort on;
declare @after_bytes varbinary(512) = convert(varbinary(512), @after, 2);
declare @last_bytes varbinary(512) = (select top (1) s.id_bytes from (
select top (1000) t.id_bytes from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes > @after_bytes order by t.id_bytes) as s order by s.id_bytes desc);
delete t from manifold_documents.[documents] as t with (rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes > @after_bytes and t.id_bytes <= @last_bytes;
select @last_bytes;
